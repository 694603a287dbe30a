import assert from "node:assert/strict";
import { test } from "node:test";
import { target } from "./links";

const shows = (text: string, href: string): string | undefined => target(text, href)?.shows;

test("a link shows its host unless its text is that or the address", () => {
  for (const text of ["https://evil.example/a?b=c", "evil.example/a?b=c", "evil.example"]) assert.equal(shows(text, "https://evil.example/a?b=c"), "", text);
  assert.equal(shows("https://evil.example", "https://evil.example"), "");
  assert.equal(shows("www.evil.example", "http://www.evil.example"), "");
  for (const text of [
    "",
    "click",
    "https://trusted.example/login?next=evil.example",
    "evil.example is not here, go to trusted.example",
    "evil.example.trusted.example",
    "trusted.example (evil.example)",
    "https://evil.example/phish\u202e",
    " evil.example",
    "EVIL.EXAMPLE",
  ])
    assert.equal(shows(text, "https://evil.example/phish"), "evil.example", text);
});

test("what looks like a host is none", () => {
  assert.equal(shows("https://trusted.example@evil.example/", "https://trusted.example@evil.example/"), "evil.example");
  assert.equal(shows("https://trusted.example:443@evil.example", "https://trusted.example:443@evil.example"), "evil.example");
  assert.equal(shows("https://trustеd.example/", "https://trustеd.example/"), "xn--trustd-7of.example");
  assert.equal(shows("https://evil.example", "https://evil.example:8443/"), "evil.example:8443");
});

test("a link to write mail shows the address", () => {
  assert.equal(shows("a@evil.example", "mailto:a@evil.example"), "");
  assert.equal(shows("a@trusted.example", "mailto:a@evil.example"), "a@evil.example");
  assert.equal(shows("a@trusted.example", "mailto:a@trusted.example?cc=b@evil.example"), "a@trusted.example?cc=b@evil.example");
});

test("other links are not followed", () => {
  for (const href of ["javascript:alert(1)", "data:text/html,a", "/v1/runs", "#a", "", "//evil.example", "https://"]) assert.equal(target("a", href), null, href);
});
