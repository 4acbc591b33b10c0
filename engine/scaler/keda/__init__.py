"""An external scaler of KEDA, served by each node: https://keda.sh/docs/latest/concepts/external-scalers."""
