// One endpoint of Qwen Code's published SDK, driven line by line: the other side in tests/test_neighbours_qwen.py.
//
//   node qwen_peer.mjs FOLDER-OF-THE-PACKAGE NAME [refuse]
//
// Each line on stdin is {"id":…,"do":…,…}; each answer {"id":…,"result":…} or {"id":…,"error":…}. What the endpoint
// hears by itself is {"event":"message"|"receipt",…}. With `refuse` it takes no messages. It ends with its stdin.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [folder, name, refuse] = process.argv.slice(2);
const sdk = createRequire(`${folder}/`)('@qwen-code/sdk/peer');
const tell = (said) => process.stdout.write(`${JSON.stringify(said)}\n`);

const endpoint = await sdk.PeerEndpoint.start({
  name,
  ...(refuse ? {} : { onMessage: (message) => tell({ event: 'message', ...message }) }),
  onReceipt: (receipt) => tell({ event: 'receipt', ...receipt }),
  onError: (error) => tell({ event: 'error', message: String(error) }),
});

const records = async () => sdk.readLiveSessionRecords(endpoint.registryDir);
const recordOf = async (sessionId) => (await records()).find((record) => record.sessionId === sessionId);

const acts = {
  list: () => endpoint.list(),
  records: async () => (await records()).map(({ ipcToken, ...rest }) => ({ ...rest, hasToken: Boolean(ipcToken) })),
  send: (call) => endpoint.send({ to: call.to, content: call.content, ...(call.fromMode ? { fromMode: call.fromMode } : {}) }),
  receipt: (call) => endpoint.awaitReceipt(call.msgId, { final: call.final ?? false, timeoutMs: call.timeoutMs ?? 10_000 }),
  // A message as the SDK builds and writes it, with one thing changed.
  message: async (call) => {
    const target = await recordOf(call.sessionId);
    const frame = {
      ...sdk.buildUserFrame({
        content: call.content,
        from: endpoint.ipcPath,
        replyToken: endpoint.ipcToken,
        fromName: name,
        toSessionId: call.sessionId,
      }),
      ...call.change,
    };
    await sdk.sendPeerFrame(target.ipcPath, frame, { authToken: call.token === undefined ? target.ipcToken : call.token || undefined });
    return frame.msgId;
  },
  // A receipt as the SDK builds it.
  status: async (call) => {
    const target = await recordOf(call.sessionId);
    const frame = sdk.buildDeliveryStatusFrame({ from: endpoint.ipcPath, ...call.fields });
    await sdk.sendPeerFrame(target.ipcPath, frame, { authToken: target.ipcToken });
    return frame.msgId;
  },
  // What the SDK makes of a line of ours.
  parse: (call) => ({ auth: sdk.parsePeerAuthLine(call.line), frame: sdk.parsePeerFrame(call.line) }),
};

tell({ event: 'ready', pid: process.pid, sessionId: endpoint.sessionId, path: endpoint.ipcPath, record: endpoint.recordPath });
for await (const line of createInterface({ input: process.stdin })) {
  const call = JSON.parse(line);
  try {
    tell({ id: call.id, result: (await acts[call.do](call)) ?? null });
  } catch (error) {
    tell({ id: call.id, error: String(error) });
  }
}
await endpoint.close();
