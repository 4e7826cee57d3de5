"""Write source texts into one C++ file, so that the module carries what NVRTC compiles.

Usage: embed.py OUTPUT.cpp TEXT [TEXT ...]
"""

import pathlib
import sys

PIECE = 8000  # characters per literal; compilers limit the length of one


def literal(text: str) -> str:
    pieces = [text[i : i + PIECE] for i in range(0, len(text), PIECE)] or [""]
    return "\n".join(f'R"rntext({piece})rntext"' for piece in pieces)


def main(output: str, paths: list[str]) -> None:
    rows = []
    for path in sorted(map(pathlib.Path, paths), key=lambda p: p.name):
        rows.append(f'  {{"{path.name}", std::string({literal(path.read_text())})}},')
    pathlib.Path(output).write_text(
        "#include <map>\n#include <string>\n\nnamespace rn {\n"
        "const std::map<std::string, std::string>& texts() {\n"
        "  static const std::map<std::string, std::string> all = {\n"
        + "\n".join(rows)
        + "\n  };\n  return all;\n}\n}  // namespace rn\n"
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
