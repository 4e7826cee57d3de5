"""What compile does: looks at the module, checks the recipe, binds memory, makes the executor."""
