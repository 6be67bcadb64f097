/**
 * Numbers as arguments of a command.
 */
import { StartFault } from './processes.ts'

/** @param name of the option, for the person who has typed it. @throws StartFault when it is no whole number in that range */
export function wholeNumber(name: string, text: string, least: number, most: number): number {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN
  if (value >= least && value <= most) return value
  throw new StartFault(`--${name} must be a whole number from ${least} to ${most}, not ${text === '' ? 'empty' : text}`)
}

/** For arguments that a command reads as it starts. Says what is wrong with them, and ends it. */
export function usableArguments<T>(command: string, read: () => T): T {
  try {
    return read()
  } catch (error) {
    process.stderr.write(`${command}: ${(error as Error).message}\n`)
    return process.exit(1)
  }
}
