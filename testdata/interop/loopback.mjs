// Makes the servers of a program listen on the loopback address alone: supergateway has no flag for it.
//
//	node --import ./loopback.mjs PROGRAM [ARG…]

import { Server } from 'node:net';

const { listen } = Server.prototype;
Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, port, '127.0.0.1', ...rest);
};
