/** Logging of workers. */

/** Receives the log messages of a worker; `console` is one. */
export interface Logger {
  /** Normal operation. */
  info(message: string): void;
  /** A failure that the worker retries or recovers from. */
  warn(message: string): void;
  /** An outcome that could not be reported. */
  error(message: string): void;
}

/** The default logger: writes warnings and errors to standard error. */
export const defaultLogger: Logger = {
  info: () => {},
  warn: (message) => console.error(message),
  error: (message) => console.error(message),
};
