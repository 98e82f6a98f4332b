"""Commands to a coordinator and its replies, by family: `groups`, `offsets`, `assignors`, `admin`.

Laws: a command carries its identity and chance (request token, cause, fresh ids) with it; nothing here depends on
the version of the API that it came by, nor on wire types. `broker/apis` translates both ways. Families share `base` and
`values`; only `replies` imports all of them.
Source: architecture rules 2, 4, 5, 9.
"""
