"""Identity and rights of clients: logins, decisions about rights, and the table of the rights that each API needs."""
