/**
 * The messages that staff send to patients: which template, its variables, and the text as the patient reads it. Pure.
 */
import type { MessageType, NewMessage } from '../events/message-payloads.ts'

type Rendered = Pick<NewMessage, 'template' | 'text' | 'variables'>

interface Template {
  name: string
  /** `{variable}` stands for a variable's value. */
  text: string
}

const TEMPLATES = {
  'report.send': {
    name: 'report_ready',
    text: 'Dear {patient_name}, your report from {lab_name} is ready. Please find it attached.',
  },
  'bill.send': {
    name: 'bill_created',
    text: 'Dear {patient_name}, your bill of Rs {amount} from {lab_name} is attached.',
  },
  'booking.send': { name: 'booking_confirmed', text: 'Dear {patient_name}, your {visit} is booked for {slot}.' },
  'phlebotomist.send': {
    name: 'phlebotomist_assigned',
    text: 'Dear {patient_name}, {phlebotomist_name} will collect your sample on {slot}.',
  },
  'quotation.send': {
    name: 'quotation',
    text: 'Dear {patient_name}, the tests that you asked for cost Rs {amount} at {lab_name}.',
  },
} as const satisfies Record<MessageType, Template>

/** The variables of a template, by the names that stand in its text. */
type VariablesOf<Text extends string> = Text extends `${string}{${infer Name}}${infer Rest}`
  ? Record<Name, string> & VariablesOf<Rest>
  : unknown

export function renderMessage<Type extends MessageType>(
  type: Type,
  variables: VariablesOf<(typeof TEMPLATES)[Type]['text']>,
): Rendered {
  const values = variables as Record<string, string>
  const { name, text } = TEMPLATES[type]
  // In one pass: a value that looks like a variable stays what it is.
  return { template: name, text: text.replace(/\{(\w+)\}/g, (_, variable) => values[variable]!), variables: values }
}

/** Two decimals: `730.00`. */
export function formatAmount(amount: number): string {
  return amount.toFixed(2)
}

/** The zone's wall clock: `21 Nov 2026, 07:30 AM`. */
export function formatSlot(scheduledAt: Date, timeZone: string): string {
  const parts = new Intl.DateTimeFormat('en-US', {
    timeZone,
    day: '2-digit',
    month: 'short',
    year: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    hour12: true,
  }).formatToParts(scheduledAt)
  const { day, month, year, hour, minute, dayPeriod } = Object.fromEntries(
    parts.map(({ type, value }) => [type, value]),
  ) as Record<string, string>
  return `${day} ${month} ${year}, ${hour}:${minute} ${dayPeriod}`
}
