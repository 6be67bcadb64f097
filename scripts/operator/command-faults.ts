/** What a command ends with when it can't do what it was asked to; the message is for a person. */
export class CommandFault extends Error {}

/** The command was not called as it must be. */
export class UsageFault extends CommandFault {}

/** The service has answered, and it was no. */
export class Refusal extends CommandFault {
  /** The HTTP status; undefined: refused before anything was sent. */
  readonly status: number | undefined

  constructor(message: string, status?: number) {
    super(message)
    this.status = status
  }
}

/** There is no answer, or one that says nothing about the request. */
export class NoAnswer extends CommandFault {}
