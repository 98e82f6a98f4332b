"""Who a client is, and what it may do: logins, rights, and the table of what each API needs."""
