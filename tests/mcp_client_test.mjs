// An agent's client asks `perfpredict serve --mcp`; the SDK checks every answer by the protocol's schemas.
import assert from 'node:assert/strict';
import {Client} from '@modelcontextprotocol/sdk/client/index.js';
import {StdioClientTransport} from '@modelcontextprotocol/sdk/client/stdio.js';

const client = new Client({name: 'test', version: '1'});
await client.connect(new StdioClientTransport({
  command: process.argv[2], args: ['serve', '--mcp', '--gpus', 'a100-sxm-80gb,h100-sxm-80gb'], env: process.env}));
assert.equal(client.getServerVersion().name, 'perfpredict');
assert.match(client.getInstructions(), /build/);
await client.ping();
const {tools} = await client.listTools();
assert.ok(['build', 'predict', 'duration', 'ask'].every((name) => tools.some((tool) => tool.name === name)));
const call = (name, args) => client.callTool({name, arguments: args});
assert.ok(!(await call('build', {name: 'g', family: 'gpt', preset: 'gpt2', batch: 8})).isError);
const predicted = await call('predict', {graph: 'g', gpu: 'h100-sxm-80gb'});
assert.match(predicted.content[0].text, /ms per step on h100-sxm-80gb \(in nine of ten cases/);
assert.ok(predicted.structuredContent.e2e_us > 0);
const job = await call('duration', {graph: 'g', worlds: [1, 8], samples: 1e7});
assert.equal(job.structuredContent.rows.length, 4);
console.log(predicted.content[0].text + '\n\n' + job.content[0].text);
const refused = await call('predict', {graph: 'no such', gpu: 'h100-sxm-80gb'});
assert.ok(refused.isError);
await assert.rejects(client.listResources());
await assert.rejects(call('fly', {}), /-32602/);
await client.close();
console.log('ok');
