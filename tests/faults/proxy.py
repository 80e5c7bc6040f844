"""A network between a controller and one broker that can be cut, held up or slowed: a proxy on loopback.

One thread runs all connections of a proxy; ``close`` ends them. Modes: ``open``; ``cut`` (connections are reset, new ones too);
``hold`` (nothing passes and neither side learns it, as with a broken cable); ``slow`` (everything takes ``DELAY_S`` longer).
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Literal

from streaming.process.closing import Closing

Mode = Literal["open", "cut", "hold", "slow"]

DELAY_S = 0.5
_CHUNK_BYTES = 64 * 1024
_LOOK_S = 0.05


class Proxy(Closing):
    """From ``port`` to ``target_port``, both on loopback."""

    def __init__(self, port: int, target_port: int) -> None:
        self._port, self._target_port = port, target_port
        self._mode: Mode = "open"
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", port))

    def set(self, mode: Mode) -> None:
        """Set the mode from now on."""
        self._mode = mode
        if mode == "cut":
            self._loop.call_soon_threadsafe(self._reset)

    def close(self) -> None:
        """End all connections."""
        self._mode = "cut"
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _reset(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _end(self) -> None:
        self._server.close()
        self._reset()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "cut":
            writer.transport.abort()
            return
        try:
            its_reader, its_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, its_writer}
        await asyncio.gather(self._copy(reader, its_writer), self._copy(its_reader, writer))
        self._writers -= {writer, its_writer}

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                while self._mode == "hold":  # noqa: ASYNC110  modes are set from other threads
                    await asyncio.sleep(_LOOK_S)
                if self._mode == "slow":
                    await asyncio.sleep(DELAY_S)
                writer.write(data)
                await writer.drain()
        writer.close()
