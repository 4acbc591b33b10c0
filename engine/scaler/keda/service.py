"""The service that KEDA asks: one metric, whose value is the number of nodes, with a target of 1 per node.

KEDA hands both to a HorizontalPodAutoscaler, which divides one by the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from evenlane.engine.scaler.keda.protos import CLASSES, METHODS, SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.scaler.recommendation import Recommendation, Recommendations

METRIC = "evenlane-desired-nodes"


class ExternalScaler:
    """Answers for one environment. Without a recommendation it answers with an error, and KEDA keeps the number of
    replicas, or uses the fallback of the ScaledObject.
    """

    def __init__(self, env: str, recommendations: Recommendations) -> None:
        self._env, self._recommendations = env, recommendations

    def handlers(self) -> Any:
        """Return the handlers for a server of gRPC."""
        calls = {
            "IsActive": self.is_active, "StreamIsActive": self.stream_is_active, "GetMetricSpec": self.get_metric_spec,
            "GetMetrics": self.get_metrics,
        }  # fmt: skip
        made = {}
        for name, method in METHODS.items():
            make = grpc.unary_stream_rpc_method_handler if method.is_stream else grpc.unary_unary_rpc_method_handler
            made[name] = make(calls[name], method.request.FromString, method.response.SerializeToString)
        return grpc.method_handlers_generic_handler(SERVICE, made)

    async def is_active(self, request: Any, context: Any) -> Any:
        """Answer that there is something to scale. The number of nodes is never 0."""
        await self._check(request, context)
        await self._nodes(self._recommendations.current, context)
        return CLASSES["IsActiveResponse"](result=True)

    async def stream_is_active(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Answer at once, and again whenever the number changes, so that KEDA asks for it without delay."""
        await self._check(request, context)
        async for recommendation in self._recommendations.follow():
            await self._nodes(recommendation, context)
            yield CLASSES["IsActiveResponse"](result=True)

    async def get_metric_spec(self, request: Any, context: Any) -> Any:
        await self._check(request, context)
        spec = CLASSES["MetricSpec"](metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
        return CLASSES["GetMetricSpecResponse"](metricSpecs=[spec])

    async def get_metrics(self, request: Any, context: Any) -> Any:
        await self._check(request.scaledObjectRef, context)
        if request.metricName not in ("", METRIC):
            text = f"{request.metricName[:80]!r} is not a metric of Evenlane: there is {METRIC}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        nodes = await self._nodes(self._recommendations.current, context)
        value = CLASSES["MetricValue"](metricName=METRIC, metricValue=nodes, metricValueFloat=float(nodes))
        return CLASSES["GetMetricsResponse"](metricValues=[value])

    async def _check(self, reference: Any, context: Any) -> None:
        """Refuse a ScaledObject of another environment. Its metadata is that of its trigger."""
        env = reference.scalerMetadata.get("env", self._env)
        if env != self._env:
            text = f"this node belongs to environment {self._env!r}, and the trigger's metadata to {env[:80]!r}"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)

    async def _nodes(self, recommendation: Recommendation, context: Any) -> int:
        if recommendation.nodes is None:
            codes = grpc.StatusCode
            code = codes.FAILED_PRECONDITION if recommendation.is_conflict else codes.UNAVAILABLE
            await context.abort(code, recommendation.problem)
        assert recommendation.nodes is not None
        return recommendation.nodes
