"""The calls of the admin client, written once as coroutines: a module a family, held by both doors."""
