"""A call's way to the replica that it names.

Ray's own routers choose by counts of calls; a fleet has chosen already, by what each replica's records tell. Ray calls
`request_router` an alpha: its version is pinned for this file.
"""

from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica


class ByName(RequestRouter):
    """Sends a call to the replica that it names. Where that is gone, any gets it, and refuses it."""

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        from engine.serving.fleet.on_ray.seen import SEEN  # here, as Ray takes this class apart from its module

        SEEN.told([replica.replica_id.unique_id for replica in replicas])

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        wanted: Any = pending_request.kwargs.get("at") if pending_request is not None else None
        named = [replica for replica in candidate_replicas if replica.replica_id.unique_id == wanted]
        return [named or candidate_replicas]
