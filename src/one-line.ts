/**
 * What others have written, where it stands in a line of ours: in a mail, or on a terminal. Pure.
 */

/**
 * Controls behind ASCII's first ones: what a terminal follows, what ends a line for some (U+0085, U+2028), and what turns the direction
 * of what comes behind it.
 */
const LATER_CONTROLS = '\\u007f-\\u009f\\u2028\\u2029\\p{Bidi_Control}'
const ANY_CONTROLS = new RegExp(`[\\u0000-\\u001f${LATER_CONTROLS}]+`, 'gu')
const EACH_LATER_CONTROL = new RegExp(`[${LATER_CONTROLS}]`, 'gu')

export function oneLine(text: string): string {
  return text.replace(ANY_CONTROLS, ' ')
}

/** The same JSON, with the controls escaped that it need not escape. */
export function withEscapedControls(json: string): string {
  return json.replace(EACH_LATER_CONTROL, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
