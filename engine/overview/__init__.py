"""What an environment does at this moment: tenants by priority and nodes, as all nodes tell it together."""
