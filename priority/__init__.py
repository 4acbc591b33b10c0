"""Who is next: bands inside a group, fairness between tenants, the cap on what a tenant has in flight. Pure."""
