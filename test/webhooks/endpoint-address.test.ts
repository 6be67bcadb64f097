import { describe, expect, test } from 'vitest'
import { createAddressPolicy, refusedEndpoint } from '../../src/webhooks/endpoint-address.ts'

const policy = createAddressPolicy()

describe('an address', () => {
  test.each([
    ['0.0.0.0', '0.255.255.255'],
    ['10.0.0.0', '10.255.255.255'],
    ['100.64.0.0', '100.127.255.255'],
    ['127.0.0.0', '127.255.255.255'],
    ['169.254.0.0', '169.254.255.255'],
    ['172.16.0.0', '172.31.255.255'],
    ['192.0.0.0', '192.0.0.255'],
    ['192.0.2.0', '192.0.2.255'],
    ['192.88.99.0', '192.88.99.255'],
    ['192.168.0.0', '192.168.255.255'],
    ['198.18.0.0', '198.19.255.255'],
    ['198.51.100.0', '198.51.100.255'],
    ['203.0.113.0', '203.0.113.255'],
    ['224.0.0.0', '255.255.255.255'],
    ['168.63.129.16', '168.63.129.16'],
    ['::', '1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['2001::', '2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['2001:db8::', '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['2002::', '2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['3fff::', '3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['4000::', 'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'],
    ['::1', '::ffff:8.8.8.8'],
    ['64:ff9b::808:808', 'fd00:ec2::254'],
  ])('from %s to %s is refused', (first, last) => {
    expect(policy.allows(first)).toBe(false)
    expect(policy.allows(last)).toBe(false)
  })

  test.each([
    '1.0.0.0', '8.8.8.8', '9.255.255.255', '11.0.0.0', '100.63.255.255', '100.128.0.0', '126.255.255.255', '128.0.0.0',
    '169.253.255.255', '169.255.0.0', '172.15.255.255', '172.32.0.0', '192.0.1.0', '192.167.255.255', '192.169.0.0',
    '198.17.255.255', '198.20.0.0', '223.255.255.255', '168.63.129.15', '168.63.129.17', '2000::', '2001:200::',
    '2001:db7:ffff:ffff:ffff:ffff:ffff:ffff', '2001:db9::', '2003::', '2606:4700:4700::1111', '3ffe::', '3fff:1000::',
  ])('%s is public and allowed', (address) => {
    expect(policy.allows(address)).toBe(true)
  }) // prettier-ignore

  test('what is no address is refused', () => {
    for (const text of ['', 'localhost', '127.1', '1.2.3.4.5', '1.2.3.4/8']) expect(policy.allows(text)).toBe(false)
  })

  test('a range that is opened is allowed, its neighbour is not', () => {
    const opened = createAddressPolicy({ allow: ['10.1.0.0/16', 'fd00::/8'] })
    expect(opened.allows('10.1.2.3')).toBe(true)
    expect(opened.allows('10.2.0.0')).toBe(false)
    expect(opened.allows('fd12::1')).toBe(true)
    expect(opened.allows('fc00::1')).toBe(false)
  })

  test('a range that is denied is refused, public or opened, its neighbour is not', () => {
    const policy = createAddressPolicy({ allow: ['10.0.0.0/8'], deny: ['10.1.0.0/16', '8.8.8.0/24', '2606:4700::/32'] })
    for (const address of ['10.1.2.3', '8.8.8.8', '2606:4700:4700::1111']) expect(policy.allows(address)).toBe(false)
    for (const address of ['10.2.0.0', '8.8.9.8', '2606:4701::1']) expect(policy.allows(address)).toBe(true)
  })

  test('a public address of the machine itself is refused, unless it is opened', () => {
    const own = ['8.8.8.8', '2606:4700:4700::1111', '10.0.0.7', 'fe80::1%eth0']
    const policy = createAddressPolicy({ own })
    for (const address of own) expect(policy.allows(address)).toBe(false)
    for (const address of ['8.8.8.9', '2606:4700:4700::1112']) expect(policy.allows(address)).toBe(true)
    const opened = createAddressPolicy({ own, allow: ['8.8.8.8/32', '10.0.0.0/8'] })
    for (const address of ['8.8.8.8', '10.0.0.7']) expect(opened.allows(address)).toBe(true)
  })

  test('a mapped IPv6 form never inherits an opened IPv4 range', () => {
    const opened = createAddressPolicy({ allow: ['127.0.0.0/8'] })
    expect(opened.allows('127.0.0.1')).toBe(true)
    expect(opened.allows('::ffff:127.0.0.1')).toBe(false)
    expect(opened.allows('::ffff:7f00:1')).toBe(false)
  })
})

describe('an endpoint', () => {
  test.each([
    'https://partner.example.com/webhooks',
    'https://partner.example.com:8443/webhooks?tenant=7',
    'https://partner.example.com:1024/',
    'https://8.8.8.8/',
    'https://[2606:4700:4700::1111]/',
    'https://xn--bcher-kva.example/',
  ])('%s can be registered', (endpoint) => {
    expect(refusedEndpoint(endpoint, policy)).toBeUndefined()
  })

  test.each([
    'http://partner.example.com/',
    'ftp://partner.example.com/',
    'partner.example.com',
    'https:partner.example.com',
    'https://',
    'https:// partner.example.com/',
    'https:///partner.example.com/',
    'https:////partner.example.com/',
    'https://@partner.example.com/',
    'https://:@partner.example.com/',
    'https://partner.example.com\\@127.0.0.1/',
    'https://partner.example.com/\t',
    'https://user@partner.example.com/',
    'https://user:secret@partner.example.com/',
    'https://partner.example.com/#fragment',
    'https://partner.example.com/#',
    'https://partner.example.com:80/',
    'https://partner.example.com:1023/',
    'https://partner.example.com:0/',
    'https://127.0.0.1/',
    'https://127.1/',
    'https://0x7f.1/',
    'https://0x7f000001/',
    'https://2130706433/',
    'https://017700000001/',
    'https://0177.0.0.1/',
    'https://①②⑦.0.0.1/',
    'https://127。0。0。1/',
    'https://%31%32%37.0.0.1/',
    'https://127.0.0.1./',
    'https://0/',
    'https://[::1]/',
    'https://[::]/',
    'https://[::ffff:127.0.0.1]/',
    'https://169.254.169.254/latest/meta-data/',
    'https://localhost/',
    'https://localhost./',
    'https://LOCALHOST/',
    'https://lo­calhost/',
    'https://api.localhost/',
    `https://partner.example.com/${'x'.repeat(2048)}`,
  ])('%s is refused', (endpoint) => {
    expect(refusedEndpoint(endpoint, policy)).toMatch(/^endpoint must /)
  })

  test('of 2,048 characters can be registered, whatever each of them takes', () => {
    const endpoint = 'https://partner.example.com/'.padEnd(2048, 'x')
    expect(refusedEndpoint(endpoint, policy)).toBeUndefined()
    const wide = `https://partner.example.com/${'😀'.repeat(2020)}`
    expect(refusedEndpoint(wide, policy)).toBeUndefined()
    expect(refusedEndpoint(`${wide}x`, policy)).toBe('endpoint must have at most 2048 characters')
  })

  test.each([
    ['http://plain.example/hook', ', not http://plain.example/hook'],
    ['http://user:secret@plain.example/', ''],
  ])('%s is named where it has no password', (endpoint, named) => {
    expect(refusedEndpoint(endpoint, policy)).toBe(`endpoint must be an absolute URL that begins with https://${named}`)
  })

  test.each([
    ['https://partner.example.com:99999/', 'a URL with a host, and a port up to 65535 where it has one'],
    ['https://partner.example.com/a b', 'spaces, control characters or backslashes'],
    ['https://partner.example.com/a\r\nb', 'spaces, control characters or backslashes'],
    ['https:\\\\partner.example.com', 'begins with https://'],
  ])('%j is told what is wrong with it', (endpoint, said) => {
    expect(refusedEndpoint(endpoint, policy)).toContain(said)
  })

  test('on an opened range can be registered', () => {
    const opened = createAddressPolicy({ allow: ['127.0.0.0/8'] })
    expect(refusedEndpoint('https://127.0.0.1:9443/', opened)).toBeUndefined()
    expect(refusedEndpoint('https://localhost:9443/', opened)).toBeUndefined()
  })
})
