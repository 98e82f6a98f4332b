"""The values that the admin client returns, and the requests behind them: one module per subject."""
