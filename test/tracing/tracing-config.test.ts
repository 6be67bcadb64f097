import { expect, test } from 'vitest'
import { ConfigError, readConfig } from '../../src/config.ts'

const BASE = { NODE_ENV: 'test', DATA_DIR: '/nonexistent', SECRETS_KEY: Buffer.alloc(32, 7).toString('base64') }
const read = (env: Record<string, string>) => readConfig({ ...BASE, ...env }).tracing
const faultsOf = (env: Record<string, string>) => {
  try {
    read(env)
    return []
  } catch (error) {
    return (error as ConfigError).faults
  }
}

test('tracing is off unless an exporter or an endpoint is named, and OTEL_SDK_DISABLED has the last word', () => {
  expect(read({})).toBeUndefined()
  expect(read({ OTEL_SERVICE_NAME: 'x', OTEL_TRACES_SAMPLER: 'always_on' })).toBeUndefined()
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' }
  expect(read({ ...endpoint, OTEL_TRACES_EXPORTER: 'none' })).toBeUndefined()
  // The values of OpenTelemetry's own settings are case-insensitive.
  for (const OTEL_SDK_DISABLED of ['true', 'TRUE']) expect(read({ ...endpoint, OTEL_SDK_DISABLED })).toBeUndefined()
  expect(read({ OTEL_TRACES_EXPORTER: 'otlp' })?.url).toBe('http://localhost:4318/v1/traces')
})

test('the endpoint of all signals gets the path of traces, the one of traces is taken as it is', () => {
  expect(read({ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/base/' })?.url).toBe(
    'http://collector:4318/base/v1/traces',
  )
  const both = {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318',
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://traces.example/in',
  }
  expect(read(both)?.url).toBe('https://traces.example/in')
})

test('headers, attributes, the sampler and the batches are what the settings say', () => {
  expect(
    read({
      OTEL_TRACES_EXPORTER: 'otlp',
      OTEL_SERVICE_NAME: 'lab',
      OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20abc=, x-team = lab ',
      OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=staging',
      OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.25',
      OTEL_BSP_MAX_QUEUE_SIZE: '100',
      OTEL_BSP_SCHEDULE_DELAY: '200',
    }),
  ).toMatchObject({
    serviceName: 'lab',
    headers: { authorization: 'Bearer abc=', 'x-team': 'lab' },
    resourceAttributes: { 'deployment.environment.name': 'staging', 'service.version': expect.any(String) },
    sampler: { parentBased: true, root: 'ratio', ratio: 0.25 },
    maxQueueSize: 100,
    maxBatchSize: 100,
    scheduleDelayMs: 200,
  })
})

test('each setting that can not be used is named, and no value of a header is repeated', () => {
  const faults = faultsOf({
    OTEL_TRACES_EXPORTER: 'otlp',
    OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
    OTEL_EXPORTER_OTLP_HEADERS: 'topsecret',
    OTEL_TRACES_SAMPLER: 'sometimes',
    OTEL_TRACES_SAMPLER_ARG: '2',
  })
  expect(faults.map((fault) => fault.split(' ')[0])).toEqual([
    'OTEL_EXPORTER_OTLP_PROTOCOL',
    'OTEL_TRACES_SAMPLER',
    'OTEL_TRACES_SAMPLER_ARG',
    'OTEL_EXPORTER_OTLP_HEADERS',
  ])
  expect(faults.join()).not.toContain('topsecret')
  expect(faultsOf({ OTEL_TRACES_EXPORTER: 'zipkin' })[0]).toContain('OTEL_TRACES_EXPORTER')
})
