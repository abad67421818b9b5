/** A TCP proxy that loses requests or replies on demand. */

import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

/** The lost part of a request. */
export type Loss =
  /** The request arrives and the service answers, but the connection breaks before the client gets the answer. */
  | "reply"
  /** The connection breaks before the request arrives. */
  | "request"
  /** The request arrives, but the answer never does; the connection stays open. */
  | "silence";

export class Proxy {
  /** How many requests were lost. */
  lost = 0;
  #next: { loss: Loss; line: string } | undefined;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
  }

  static async start(target: URL): Promise<Proxy> {
    const server = createServer();
    const proxy = new Proxy(server);
    server.on("connection", (client) => {
      proxy.#pair(client, connect(Number(target.port), target.hostname));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Loses the next request whose first line has `line`. */
  lose(loss: Loss, line: string): void {
    this.#next = { loss, line };
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }

  #pair(client: Socket, server: Socket): void {
    let loss: Loss | undefined;
    const end = (): void => {
      client.destroy();
      server.destroy();
    };
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on("error", end);
      socket.on("close", end);
    }
    client.on("data", (data) => {
      const first = data.toString("latin1").split("\r\n", 1)[0] ?? "";
      if (this.#next !== undefined && first.includes(this.#next.line)) {
        loss = this.#next.loss;
        this.#next = undefined;
        this.lost++;
      }
      if (loss === "request") end();
      else server.write(data);
    });
    server.on("data", (data) => {
      if (loss === undefined) client.write(data);
      else if (loss === "reply") end();
    });
  }
}
