"""Deploys a model on Ray Serve, and a fleet over what Ray keeps."""

import contextlib
import logging
import os
import secrets
import threading
from typing import Any

from engine.config.checks import check, whole
from engine.config.specs import EngineConfig, InvalidInput, ModelSpec
from engine.core.face import EngineFace
from engine.jobs.progress import LoadCancelled
from engine.memory.fit import DeviceMemory, fits, model_info
from engine.serving.fleet.fleet import MOST, Fleet, check_mode

APP = "batchscope"
CALLS = 100_000  # that a replica takes at once: how many requests it takes is the server's to say
HEALTH = {"health_check_period_s": 2.0, "health_check_timeout_s": 10.0}
DRAIN = 5.0  # seconds for a replica that is scaled away; what it has then goes on at another


class RayFleet(Fleet):
    """Ends what it has deployed with it, and Ray where it began that."""

    def __init__(self, handle: Any, replicas: int, most: int, began: bool) -> None:
        from engine.serving.fleet.on_ray.replica import RayReplica
        from engine.serving.fleet.on_ray.seen import SEEN

        self._began = began

        def make(place: int, cancelled: threading.Event) -> EngineFace:
            name = SEEN.claim(cancelled)
            if name is None:
                raise LoadCancelled("the fleet is closed")
            return RayReplica(handle, name)

        super().__init__(make, most, wanted=replicas)

    def close(self) -> None:
        super().close()
        end(self._began)


def ray_fleet(
    spec: ModelSpec,
    config: EngineConfig | None = None,
    replicas: int = 2,
    most: int | None = None,
    *,
    address: str | None = None,
    threads: int | None = None,
    most_threads: int | None = None,
) -> Fleet:
    """`replicas` at least, and up to `most` as there are more open requests than slots. `address` is that of a Ray
    cluster; without, one begins on this machine and ends with the fleet. A replica is given a GPU where the model goes
    on one, else the memory that it needs. Raises InvalidInput."""
    config, most = config or EngineConfig(), replicas if most is None else most
    whole("replicas", replicas, 1, MOST)
    check(replicas <= most <= MOST, "max_replicas", most, f"must be from replicas ({replicas}) to {MOST}")
    check_mode(config)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody
    os.environ["RAY_SERVE_ENABLE_HA_PROXY"] = "0"  # it would listen on every interface
    if not address:  # Ray's ports are open on every interface, and who gets in runs what he likes: ours alone does
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray  # reads them
    from ray import serve

    from engine.serving.fleet.on_ray.by_name import ByName
    from engine.serving.fleet.on_ray.hosted import Hosted
    from engine.serving.fleet.on_ray.seen import SEEN

    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    began = not ray.is_initialized()
    if began:
        local: dict[str, Any] = {"include_dashboard": False}
        try:
            ray.init(address, log_to_driver=False, logging_level="error", **({} if address else local))
        except (ConnectionError, ValueError) as error:
            raise InvalidInput(f"ray={address!r}: no cluster answers there: {error}") from None
    try:
        serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"})
        SEEN.forget()
        scaling: dict[str, Any] = {"num_replicas": replicas}
        if most > replicas:
            target = {"target_ongoing_requests": config.max_running, "upscale_delay_s": 3.0}
            scaling = {"autoscaling_config": {"min_replicas": replicas, "max_replicas": most, **target}}
        deployment = serve.deployment(
            Hosted,
            name="replica",
            ray_actor_options=needs(spec, config, threads, bool(ray.cluster_resources().get("GPU"))),
            max_ongoing_requests=CALLS,
            request_router_config={"request_router_class": ByName},
            graceful_shutdown_timeout_s=DRAIN,
            **HEALTH,
            **scaling,
        )
        app = deployment.bind(spec, config, threads, most_threads)
        handle = serve.run(app, name=APP, route_prefix=None, logging_config={"log_level": "ERROR"})
        handle.name.remote().result(timeout_s=60)  # with it Ray begins to tell which replicas there are
        return RayFleet(handle, replicas, most, began)
    except BaseException:
        end(began)
        raise


def needs(spec: ModelSpec, config: EngineConfig, threads: int | None, cards: bool) -> dict[str, Any]:
    """What Ray is to keep for a replica: cores, and a GPU or the bytes of weights, steps and KV pool."""
    wanted: dict[str, Any] = {"num_cpus": threads or 1}
    if spec.device.startswith("cuda") or (spec.device == "auto" and cards):
        return wanted | {"num_gpus": 1}
    room = DeviceMemory("cpu", 1 << 62, 1 << 62)
    limits = {"max_running": config.max_running, "token_budget": config.token_budget, "kv_dtype": config.kv_dtype}
    bill = fits(model_info(spec), room, dtype=spec.dtype, quantizations=[spec.quantization], **limits)[0]  # type: ignore[arg-type]
    return wanted | {"memory": bill.weights + bill.activations + (config.kv_memory or 0)}


def end(began: bool) -> None:
    """Ends the deployment, and Ray with it where this process began it."""
    import ray
    from ray import serve

    with contextlib.suppress(Exception):
        serve.delete(APP)
    if began:
        with contextlib.suppress(Exception):
            serve.shutdown()
        ray.shutdown()
