// How a connection to NATS logs in, from the variables that the toolkit for Go reads.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import {
  type Authenticator, type ConnectionOptions, credsAuthenticator, nkeyAuthenticator, usernamePasswordAuthenticator,
} from "@nats-io/transport-node";

/** Returns the value of a variable, or the content of the file that the variable with _FILE names. */
function value(name: string): string {
  const path = process.env[`${name}_FILE`];
  return path ? readFileSync(path, "utf8").trimEnd() : process.env[name] ?? "";
}

/** Returns the login of TURNPIKE_NATS_CREDS, _NKEY, _USER, _PASSWORD, _CA, _CERT and _KEY, each also with _FILE. */
export function environment(): ConnectionOptions {
  const options: ConnectionOptions = {};
  const [creds, nkey, user] = ["CREDS", "NKEY", "USER"].map((n) => value(`TURNPIKE_NATS_${n}`)) as [string, string, string];
  if ([creds, nkey, user].filter(Boolean).length > 1) {
    throw new TypeError("more than one of TURNPIKE_NATS_CREDS, TURNPIKE_NATS_NKEY and TURNPIKE_NATS_USER is set, which are different ways to log in: keep one");
  }
  let authenticator: Authenticator | undefined;
  if (creds) authenticator = credsAuthenticator(new TextEncoder().encode(creds));
  if (nkey) authenticator = nkeyAuthenticator(new TextEncoder().encode(nkey));
  if (user) authenticator = usernamePasswordAuthenticator(user, () => value("TURNPIKE_NATS_PASSWORD"));
  if (authenticator) options.authenticator = authenticator;
  const [ca, cert, key] = ["CA", "CERT", "KEY"].map((n) => value(`TURNPIKE_NATS_${n}`)) as [string, string, string];
  if (ca || cert || key) options.tls = { ...(ca ? { ca } : {}), ...(cert ? { cert, key } : {}) };
  return options;
}

/** Returns the servers of a URL, and the login in it. */
export function address(url: string): ConnectionOptions {
  const logins: ConnectionOptions[] = [];
  const servers = url.split(",").map((server) => {
    const [, scheme = "nats", login, host = server] = /^(?:(\w+):\/\/)?(?:([^@/]*)@)?(.*)$/.exec(server) ?? [];
    if (scheme !== "nats" && scheme !== "tls") throw new TypeError("the URL of the NATS server is not valid: write one such as nats://127.0.0.1:4222 or tls://host:4222");
    const [user = "", pass] = (login ?? "").split(":").map(decodeURIComponent);
    if (user) logins.push(pass === undefined ? { token: user } : { user, pass });
    if (scheme === "tls") logins.push({ tls: {} });
    return host;
  });
  return Object.assign({ servers }, ...logins) as ConnectionOptions;
}

/**
 * Returns the URL of the server that is named, or in TURNPIKE_NATS_URL, else that of the `turnpike dev` that runs here,
 * else the usual one. The address of a `turnpike dev` gets its password, wherever it comes from.
 */
export function serverURL(named?: string): string {
  const given = named || process.env["TURNPIKE_NATS_URL"] || "";
  const file = join(process.env["TURNPIKE_DATA_DIR"] || ".turnpike", "nats.url");
  const dev = existsSync(file) ? readFileSync(file, "utf8").trim() : "";
  if (!given) return dev || "nats://127.0.0.1:4222";
  return dev && given === dev.replace(/\/\/.*@/, "//") ? dev : given;
}
