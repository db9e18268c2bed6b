"""What people call the phases of a step, and the parts of its forward pass. No Qt in here."""

from app.language import tr

PHASE_TITLES = {
    "plan": tr("plan"),
    "draft": tr("draft"),
    "prepare": tr("prepare"),
    "forward": tr("forward"),
    "sample": tr("sample"),
    "other": tr("other"),
    "wait": tr("wait"),
    "commit": tr("commit"),
    "record": tr("record"),
    "launch": tr("launch"),  # forward, where a device computes while the host goes on
    "attention": tr("attention"),
}
