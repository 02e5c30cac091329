class Id:
    scheme: str
    id: str

class ACL:
    perms: int
    id: Id

class Permissions:
    READ: int
    WRITE: int
    CREATE: int
    DELETE: int
    ADMIN: int

OPEN_ACL_UNSAFE: list[ACL]
