"""Triton's interpreter, with its language put in place once a launch and not at every inner call.

The interpreter replaces the functions of `triton.language` for a kernel, and again for each
function that it calls, around what is there already: most of its time goes there.
"""

from triton import language
from triton.runtime import interpreter


def patch_once_a_launch():
    """Let inner calls find the language as their kernel did; for a process of its own."""
    original, scopes, patched = interpreter._patch_lang, [], set()

    def patch(function):
        values = function.__globals__.values()
        needed = {id(value) for value in values if value is language or value is language.core}
        if needed <= patched:
            return interpreter._LangPatchScope()
        scope = original(function)
        if not scopes:
            scope.restore = restore
        scopes.append(scope)
        patched.update(needed)
        return scope

    def restore():
        for scope in reversed(scopes):
            type(scope).restore(scope)
        scopes.clear()
        patched.clear()

    interpreter._patch_lang = patch
