/** Connection options: the URL of the server, the token and the scope of requests. */

/** The address on which `onward dev` and `onward serve` listen by default. */
export const DEFAULT_SERVER = "http://127.0.0.1:7400";

/** How to connect to a server. */
export interface ConnectionOptions {
  /** URL of the server; default: `ONWARD_SERVER`, else `http://127.0.0.1:7400`. */
  server?: string | undefined;
  /** Bearer token; default: `ONWARD_TOKEN`, else none. */
  token?: string | undefined;
  /** Default: the tenant of the token. */
  tenant?: string | undefined;
  /** Default: the project of the token. */
  project?: string | undefined;
  /** Default: the environment of the token. */
  environment?: string | undefined;
}

/** Returns the URL of the server, without a trailing slash. */
export function serverUrl(options: ConnectionOptions): string {
  const server = options.server || process.env["ONWARD_SERVER"] || DEFAULT_SERVER;
  if (!/^https?:\/\/[^/]/.test(server) || !URL.canParse(server)) {
    throw new TypeError(
      `invalid server URL ${JSON.stringify(server)}: set the option server or ONWARD_SERVER ` +
        `to a URL such as ${DEFAULT_SERVER}`,
    );
  }
  return server.replace(/\/+$/, "");
}

/** Returns the headers of every request. */
export function requestHeaders(options: ConnectionOptions): Record<string, string> {
  const headers: Record<string, string> = {
    accept: "application/json",
    "content-type": "application/json",
  };
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
