"""Kits: `spec.yaml` and `agent.yaml` read and checked, mixins resolved, everything composed into one `Plan`."""
