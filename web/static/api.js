export class Refused extends Error {
	constructor(status, code, text) { super(text); this.status = status; this.code = code; }
}
async function call(path, init) {
	let r;
	try { r = await fetch("api/" + path, init); } catch { throw new Refused(0, "unreachable", "The server does not answer."); }
	let body;
	try { body = await r.json(); } catch { throw new Refused(r.status, "no_json", `The server answered ${r.status}.`); }
	if (!r.ok) throw new Refused(r.status, body.error?.code, body.error?.message || `The server answered ${r.status}.`);
	return body;
}
export const get = (path, signal) => call(path, { signal, headers: { Accept: "application/json" } });
export const post = (path, body) => call(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Leveret": "1" }, body: JSON.stringify(body) });
