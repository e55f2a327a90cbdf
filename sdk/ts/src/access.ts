/** Where the server is, and who asks. */

/** Where `onward dev` and `onward serve` listen unless told. */
export const SERVER = "http://127.0.0.1:7400";

/** Where the server is, and who asks. */
export interface AccessOptions {
  /** The URL; `ONWARD_SERVER` unless given, and `onward dev` on this machine without both. */
  server?: string | undefined;
  /** `ONWARD_TOKEN` unless given. */
  token?: string | undefined;
  /** What the token says, unless given. */
  tenant?: string | undefined;
  /** What the token says, unless given. */
  project?: string | undefined;
  /** What the token says, unless given. */
  environment?: string | undefined;
}

/** The URL of the server, without a slash at its end. */
export function serverOf(options: AccessOptions): string {
  const server = options.server || process.env["ONWARD_SERVER"] || SERVER;
  if (!/^https?:\/\/[^/]/.test(server) || !URL.canParse(server)) {
    throw new TypeError(`${server} is not the URL of a server, such as ${SERVER}`);
  }
  return server.replace(/\/+$/, "");
}

/** What every request carries. */
export function headersOf(options: AccessOptions): Record<string, string> {
  const headers: Record<string, string> = { accept: "application/json", "content-type": "application/json" };
  const token = options.token || process.env["ONWARD_TOKEN"];
  if (token) {
    headers["authorization"] = `Bearer ${token}`;
  }
  for (const part of ["tenant", "project", "environment"] as const) {
    const name = options[part];
    if (name) {
      headers[`onward-${part}`] = name;
    }
  }
  return headers;
}
