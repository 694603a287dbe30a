// Where a link of a text leads.

// target is what a link to href must show beside a text: its host, or the address of mail. It is "" if the text is
// exactly that or the whole address, and null if such a link is not followed.
export function target(text: string, href: string): { href: string; shows: string } | null {
  let to: URL;
  try {
    to = new URL(href);
  } catch {
    return null;
  }
  if (!["http:", "https:", "mailto:"].includes(to.protocol)) return null;
  const rest = to.href.slice(to.protocol.length).replace(/^\/\//, "");
  const where = to.protocol === "mailto:" ? rest : to.host;
  // A name before the host looks like a host.
  const said = !to.username && !to.password && [where, rest, to.href].some((s) => text === s || text + "/" === s);
  return { href: to.href, shows: said ? "" : where };
}
