/**
 * The only place where an error gets a status and the specification's shape.
 */
import { DomainError, type ErrorKind } from './errors.ts'

const STATUS: Record<ErrorKind, { status: number; message: string }> = {
  bad_request: { status: 400, message: 'Bad Request' },
  unauthorized: { status: 401, message: 'Unauthorized' },
  forbidden: { status: 403, message: 'Forbidden' },
  not_found: { status: 404, message: 'Not Found' },
  method_not_allowed: { status: 405, message: 'Method Not Allowed' },
  range_not_satisfiable: { status: 416, message: 'Range Not Satisfiable' },
  conflict: { status: 409, message: 'Conflict' },
  precondition_failed: { status: 412, message: 'Precondition Failed' },
  payload_too_large: { status: 413, message: 'Payload Too Large' },
  unsupported_media_type: { status: 415, message: 'Unsupported Media Type' },
  unprocessable: { status: 422, message: 'Unprocessable Entity' },
  too_many_requests: { status: 429, message: 'Too Many Requests' },
  unavailable: { status: 503, message: 'Service Unavailable' },
}

export interface ErrorResponse {
  status: number
  headers: Record<string, string>
  body: {
    success: false
    status: number
    message: string
    error: { details: string; code: string; fields?: { field: string; message: string }[]; leadId?: string }
    requestId: string
  }
}

/** Faults below HTTP, by Node's code for them: the request never becomes one. */
const PROTOCOL_FAULTS: Record<string, { status: number; message: string; details: string }> = {
  HPE_HEADER_OVERFLOW: {
    status: 431,
    message: 'Request Header Fields Too Large',
    details: 'the headers of the request are too large',
  },
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, message: 'Request Timeout', details: 'the request took too long to arrive' },
  // A proxy's method, which names a host instead of a path. Not one of Node's codes.
  CONNECT: { status: 404, message: 'Not Found', details: 'there is nothing at this path' },
}

/** The same shape for a request that could not be read as HTTP. Nothing of it is known, so that its id is always a new one. */
export function toProtocolErrorResponse(code: string | undefined, requestId: string) {
  const { status, message, details } = PROTOCOL_FAULTS[code ?? ''] ?? {
    status: 400,
    message: 'Bad Request',
    details: 'the request is not valid HTTP',
  }
  return { status, body: { success: false, status, message, error: { details, code: 'invalid_http' }, requestId } }
}

/**
 * @param error anything thrown; what is not a DomainError becomes a 500 that says nothing of its cause
 * @param requestId echoed, so that the caller and the log line can be matched
 */
export function toErrorResponse(error: unknown, requestId: string): ErrorResponse {
  if (!(error instanceof DomainError)) {
    return {
      status: 500,
      headers: {},
      body: {
        success: false,
        status: 500,
        message: 'Internal Server Error',
        error: { details: 'an unexpected error occurred', code: 'internal_error' },
        requestId,
      },
    }
  }
  const { status, message } = STATUS[error.kind]
  const { fields, leadId, retryAfterSeconds, headers } = error.extras
  return {
    status,
    headers: {
      ...headers,
      ...(retryAfterSeconds === undefined ? {} : { 'Retry-After': String(Math.ceil(retryAfterSeconds)) }),
      ...(status === 401 ? { 'WWW-Authenticate': 'Bearer' } : {}),
    },
    body: {
      success: false,
      status,
      message,
      error: {
        details: cut(error.message),
        code: error.code,
        ...(fields
          ? { fields: fields.map(({ field, message: fault }) => ({ field: cut(field), message: cut(fault) })) }
          : {}),
        ...(leadId ? { leadId } : {}),
      },
      requestId,
    },
  }
}

/** As the contract bounds every text: a list of a hundred allowed values can be longer. */
const MAX_TEXT = 4096

function cut(text: string): string {
  return text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT - 1).toWellFormed()}…` : text
}
