"""The engines' real KV pools against the plan, and the correction that follows."""
