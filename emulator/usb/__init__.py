"""USB as the device sees it from outside: transfers, a host controller, and fronts for real software."""
