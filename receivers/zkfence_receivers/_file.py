"""FileReceiver (being written)."""


class FileReceiver:
    pass
