/**
 * What others have written, where it stands in a line of ours: in a mail, or on a terminal. Pure.
 */

/**
 * Behind ASCII's first controls, of which JSON needs none: what a terminal follows, what ends a line for some (U+0085, U+2028), and what
 * turns the direction of what comes behind it.
 */
const EACH_LATER_CONTROL = /[\u007f-\u009f\u2028\u2029\p{Bidi_Control}]/gu
const CONTROLS = /[\u0000-\u001f\u007f-\u009f\u2028\u2029\p{Bidi_Control}]+/gu

export function oneLine(text: string): string {
  return text.replace(CONTROLS, ' ')
}

/** The same JSON, with the controls escaped that it need not escape. */
export function withEscapedControls(json: string): string {
  return json.replace(EACH_LATER_CONTROL, (control) => `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
