"""What to do about a pool: pure planning over a snapshot."""

from reasoningpool.planning.plan import PlanningSettings, plan, plan_failure

__all__ = ["PlanningSettings", "plan", "plan_failure"]
