/** Where workers say what happens; `console` is one. */

/** Where workers say what happens; `console` is one. */
export interface Log {
  /** What is as it should be. */
  info(message: string): void;
  /** What may need a look if it goes on. */
  warn(message: string): void;
  /** What was lost. */
  error(message: string): void;
}

/** Warnings and errors, on standard error. */
export const usualLog: Log = {
  info: () => {},
  warn: (message) => console.error(message),
  error: (message) => console.error(message),
};
