// The site of the documentation: the pages of docs, as they are in the repository.
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, "../../..");
const modules = join(here, "../node_modules");
const docs = join(root, "docs");
const source = "https://github.com/turnpike-dev/turnpike/blob/main/";

const title = (page: string) => /^# (.*)$/m.exec(readFileSync(join(docs, page), "utf8"))?.[1] ?? page;

// A section of the sidebar: the pages of a folder, by title.
function section(text: string, folder: string, collapsed = false) {
  const items = readdirSync(join(docs, folder))
    .filter((name) => name.endsWith(".md") && name !== "README.md")
    .map((name) => ({ text: title(`${folder}/${name}`).replaceAll("`", ""), link: `/${folder}/${name.replace(/\.md$/, "")}` }))
    .sort((a, b) => (folder === "adr" ? a.link.localeCompare(b.link) : a.text.localeCompare(b.text)));
  return { text, collapsed, items };
}

export default defineConfig({
  title: "Turnpike",
  description: "LLM agents as events on a queue",
  srcDir: docs,
  outDir: join(root, "dist/site"),
  cacheDir: join(root, ".bin/site-cache"),
  base: process.env.DOCS_BASE ?? "/",
  cleanUrls: false,
  rewrites: { "README.md": "index.md", "adr/README.md": "adr/index.md" },
  ignoreDeadLinks: [/^\/openapi/],
  vite: {
    // The pages are outside the folder with the modules.
    resolve: { alias: [{ find: /^vue$/, replacement: join(modules, "vue/dist/vue.runtime.esm-bundler.js") }, { find: "vue/server-renderer", replacement: join(modules, "vue/server-renderer/index.mjs") }] },
    build: { chunkSizeWarningLimit: 4000 },
  },
  markdown: {
    html: false,
    // {{name}} is the syntax of variables of agents, not of the site.
    config(md) {
      const text = md.renderer.rules.text!;
      md.renderer.rules.text = (...args) => text(...args).replaceAll("{{", "&#123;&#123;");
      md.core.ruler.push("repository", (state) => {
        for (const block of state.tokens) {
          for (const token of block.children ?? []) {
            if (token.type === "link_open") token.attrSet("href", address(token.attrGet("href") ?? "", state.env.path));
          }
        }
      });
    },
    languageAlias: { console: "shellsession", "yaml part": "yaml" },
  },
  themeConfig: {
    search: { provider: "local" },
    nav: [
      { text: "Start", link: "/tutorials/first-agent" },
      { text: "HTTP API", link: "/openapi.html", target: "_self" },
      { text: "Source", link: source },
    ],
    sidebar: [section("Tutorials", "tutorials"), section("How-to", "how-to"), section("Concepts", "concepts"), section("Reference", "reference"), section("Decisions", "adr", true)],
    outline: "deep",
  },
});

// Links to files outside docs lead to the repository. One to a file that is not there stays, and fails the build.
function address(href: string, page: string): string {
  if (/^[a-z]+:|^#/.test(href)) return href;
  const [path, anchor] = href.split("#");
  const target = resolve(dirname(page), path!);
  if (target.startsWith(docs + "/") && target.endsWith(".md")) return href;
  if (!existsSync(target)) return href;
  return source + relative(root, target) + (anchor ? `#${anchor}` : "");
}
