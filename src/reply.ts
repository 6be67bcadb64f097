/** What a handler answers. */
export interface Reply {
  status: number
  /** Sent as JSON; a `Representation` is JSON already. */
  body: unknown
  headers?: Record<string, string>
}
