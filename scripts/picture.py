#!/usr/bin/env python3
"""A terminal session as an SVG: picture.py OUT.svg 'shown command' COMMAND ARGS...

The README's pictures are made of what the program really prints.
"""
import html, subprocess, sys

out, shown, command = sys.argv[1], sys.argv[2], sys.argv[3:]
done = subprocess.run(command, capture_output=True, text=True)
lines = [f"$ {shown}"] + done.stdout.rstrip("\n").split("\n")
width = max(len(line) for line in lines) * 8.43 + 40
height = len(lines) * 19 + 52
rows = "\n".join(
    f'<text x="20" y="{50 + i * 19}" class="{"prompt" if i == 0 else "line"}" xml:space="preserve">{html.escape(line)}</text>' for i, line in enumerate(lines)
)
with open(out, "w") as file:
    file.write(f'''<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}">
<style>text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d8dee9 }} .prompt {{ fill: #8fbcbb }}</style>
<rect width="100%" height="100%" rx="8" fill="#1f2430"/>
<circle cx="20" cy="18" r="5" fill="#bf616a"/><circle cx="38" cy="18" r="5" fill="#ebcb8b"/><circle cx="56" cy="18" r="5" fill="#a3be8c"/>
{rows}
</svg>
''')
