// One script, one style sheet, stable names: the build is committed to crates/server/ui-dist, so its history must be readable, and
// `twinscope diff --html` puts both into one file, so there is nothing to load later.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { brotliCompressSync, constants } from "node:zlib";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

/** The two Latin fonts, beside the page and not inside its style sheet: a report in one file does without them. */
function fonts(): Plugin {
  const files = {
    "assets/inter.woff2": "node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2",
    "assets/jetbrains-mono.woff2": "node_modules/@fontsource-variable/jetbrains-mono/files/jetbrains-mono-latin-wght-normal.woff2",
    "assets/fonts.css": "src/styles/fonts.css",
  };
  return {
    name: "fonts",
    apply: "build",
    generateBundle() {
      for (const [fileName, path] of Object.entries(files)) {
        this.emitFile({ type: "asset", fileName, source: readFileSync(new URL(path, import.meta.url)) });
      }
    },
  };
}

/** `report.html`: the whole page in one file, with an empty element that the server puts a report into. It asks for nothing. */
function report(): Plugin {
  const hash = (text: string) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  return {
    name: "report",
    apply: "build",
    enforce: "post",
    generateBundle(_, bundle) {
      const [app, style] = [bundle["assets/app.js"], bundle["assets/app.css"]];
      if (app?.type !== "chunk" || style?.type !== "asset") throw new Error("the bundle has no assets/app.js or assets/app.css");
      const script = app.code.replaceAll("</script", "<\\/script");
      const css = String(style.source);
      const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(css)}; img-src data: blob:; base-uri 'none'; form-action 'none'`;
      const source = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>twinscope report</title>
<style>${css}</style>
</head>
<body>
<div id="app"></div>
<script type="application/json" id="twinscope-report"></script>
<script type="module">${script}</script>
</body>
</html>
`;
      this.emitFile({ type: "asset", fileName: "report.html", source });
    },
  };
}

/** `app.js.br` beside `app.js`: the server only chooses a file. */
function brotli(): Plugin {
  return {
    name: "brotli",
    apply: "build",
    enforce: "post",
    generateBundle(_, bundle) {
      for (const [fileName, file] of Object.entries(bundle)) {
        if (!/\.(js|css|svg)$/.test(fileName)) continue;
        const source = Buffer.from(file.type === "chunk" ? file.code : file.source);
        const params = { [constants.BROTLI_PARAM_QUALITY]: 11 };
        this.emitFile({ type: "asset", fileName: `${fileName}.br`, source: brotliCompressSync(source, { params }) });
      }
    },
  };
}

const server = process.env["TWINSCOPE"] ?? "http://127.0.0.1:5000";

export default defineConfig({
  plugins: [svelte(), fonts(), report(), brotli()],
  build: {
    outDir: process.env["UI_DIST"] ?? "../crates/server/ui-dist",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    // Newer than Vite's default, which rewrites light-dark() so that the theme button does nothing.
    target: ["chrome123", "firefox120", "safari17.5"],
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    rolldownOptions: {
      output: {
        entryFileNames: "assets/app.js",
        chunkFileNames: "assets/[name].js",
        assetFileNames: "assets/app[extname]",
      },
    },
  },
  test: { include: ["src/**/*.test.ts"] },
  // The server refuses requests whose Origin is not its own.
  server: { proxy: { "/api": { target: server, headers: { origin: server } } } },
});
