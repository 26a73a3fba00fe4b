"""A PCIe fabric: functions, ports that route by bus number and address, and a plain test endpoint."""
