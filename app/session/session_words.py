"""What the bar at the top says of a session."""

from app.language import tr
from app.session.server_link import link_words
from app.session.session import Session, SessionState
from app.words import model_words, run_words
from engine.jobs import engine_missing


def session_words(session: Session, sweeps: bool) -> str:
    """What is loaded, or under way; `sweeps`: the engine that was lent out plays a sweep, not a race."""
    trace, model = session.trace, model_words(session.spec.source)
    if (server := session.server) is not None:
        match session.state:
            case SessionState.LOADING:
                return tr("connecting to {url} …", url=server.url)
            case SessionState.READY if trace is not None and trace.records:
                where = server.url.partition("//")[2]
                return f"{where}, {link_words(session.link)}   ·   {run_words(trace.header)}"
    match session.state:
        case SessionState.READY if trace is not None and trace.records:
            return run_words(trace.header)
        case SessionState.READY | SessionState.LOADING:
            return tr("loading {model} …", model=model)
        case SessionState.EMPTY:
            return tr("viewer") if engine_missing() else tr("no model loaded")
        case SessionState.LEASED:
            return tr("a sweep is running") if sweeps else tr("a race is running")
        case SessionState.DIED:
            return tr("{model} · the engine has stopped", model=model)
