/**
 * Which places of a body a schema knows. What it does not know is ignored, whatever it is.
 */

/** Without references: they have been put in. */
export interface JsonSchema {
  properties?: Record<string, JsonSchema>
  items?: JsonSchema
  additionalProperties?: JsonSchema | boolean
  allOf?: JsonSchema[]
  anyOf?: JsonSchema[]
  oneOf?: JsonSchema[]
  then?: JsonSchema
  else?: JsonSchema
}

/** From the outermost on: names, and places in lists. */
export type BodyPath = readonly (string | number)[]

/** @returns whether some part of the schema says something of this place */
export function isKnownPlace(schema: JsonSchema | undefined, path: BodyPath): boolean {
  if (schema === undefined) return false
  const [step, ...rest] = path
  if (step === undefined) return true
  const { allOf = [], anyOf = [], oneOf = [], then, else: otherwise } = schema
  return (
    isKnownInside(schema, step, rest) ||
    [...allOf, ...anyOf, ...oneOf, then, otherwise].some((part) => isKnownPlace(part, path))
  )
}

function isKnownInside(schema: JsonSchema, step: string | number, rest: BodyPath): boolean {
  const { properties = {}, items, additionalProperties } = schema
  if (typeof step === 'number') return isKnownPlace(items, rest)
  if (Object.hasOwn(properties, step)) return isKnownPlace(properties[step], rest)
  // Names that the caller chooses: all that is in them is kept.
  return (
    additionalProperties === true ||
    (typeof additionalProperties === 'object' && isKnownPlace(additionalProperties, rest))
  )
}
