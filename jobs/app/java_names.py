"""Remembers the classes and methods of the JVM that were named once."""

from functools import cache
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JVMView


@cache
def remember_java_names() -> None:
    """Lets py4j keep each class and each static method as an attribute of the object it was asked for.

    Nearly every function of PySpark names a class and a method. py4j asks the JVM for both each time, and the JVM
    searches all of Spark's jars for a class whose package is not named. On a small night that was an eighth of the CPU
    time.
    """
    for kind in (JVMView, JavaClass):
        _remember(kind)


def _remember(kind: Any) -> None:
    ask = kind.__getattr__

    def ask_once(self: Any, name: str) -> Any:
        answer = ask(self, name)
        if isinstance(answer, JavaClass | JavaMember):
            vars(self)[name] = answer
        return answer

    kind.__getattr__ = ask_once
