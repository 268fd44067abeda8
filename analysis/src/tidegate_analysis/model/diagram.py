"""stub"""
def draw() -> str:
    return ""
