"""A fleet whose replicas Ray Serve keeps, on one machine or many. Extra `ray`."""

from engine.serving.fleet.on_ray.deploy import ray_fleet
