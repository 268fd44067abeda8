-- TPC-C's transactions as procedures of Firebird.
--
-- EXECUTE PROCEDURE is one statement: an exception undoes all that it did. None of them is
-- selectable, for the work of one that is can be undone in part, between two of its rows. A SELECT
-- without a row leaves its variables as they were, and ROW_COUNT says so.

CREATE OR ALTER EXCEPTION tpcc_missing 'tpcc: a row is missing'

CREATE OR ALTER EXCEPTION tpcc_unused 'tpcc: unused item'

-- The customer in the middle of those of a last name.
CREATE OR ALTER PROCEDURE tpcc_customer (w INTEGER, d INTEGER, name VARCHAR(16))
RETURNS (c INTEGER)
AS
    DECLARE number INTEGER;
BEGIN
    SELECT COUNT(*) FROM customer WHERE c_w_id = :w AND c_d_id = :d AND c_last = :name
    INTO number;
    IF (number = 0) THEN EXCEPTION tpcc_missing;
    SELECT c_id FROM customer WHERE c_w_id = :w AND c_d_id = :d AND c_last = :name
    ORDER BY c_first, c_id ROWS (:number + 1) / 2 TO (:number + 1) / 2
    INTO c;
END

-- The first number of a list that ends with a comma, and the rest of it.
CREATE OR ALTER PROCEDURE tpcc_head (list VARCHAR(200))
RETURNS (number INTEGER, rest VARCHAR(200))
AS
    DECLARE comma INTEGER;
BEGIN
    comma = POSITION(',' IN list);
    number = CAST(SUBSTRING(list FROM 1 FOR comma - 1) AS INTEGER);
    rest = SUBSTRING(list FROM comma + 1);
END

CREATE OR ALTER PROCEDURE tpcc_new_order (
    w INTEGER, d INTEGER, c INTEGER, moment BIGINT, lines_wanted INTEGER, is_local INTEGER,
    items VARCHAR(200), suppliers VARCHAR(200), quantities VARCHAR(200))
RETURNS (w_tax INTEGER, c_discount INTEGER, c_last VARCHAR(16), c_credit CHAR(2),
    d_next_o_id INTEGER, d_tax INTEGER, listed VARCHAR(2000))
AS
    DECLARE place INTEGER;
    DECLARE item INTEGER;
    DECLARE supplier INTEGER;
    DECLARE quantity INTEGER;
    DECLARE i_price BIGINT;
    DECLARE i_name VARCHAR(24);
    DECLARE i_data VARCHAR(50);
    DECLARE s_quantity INTEGER;
    DECLARE s_dist CHAR(24);
    DECLARE s_data VARCHAR(50);
BEGIN
    SELECT w_tax FROM warehouse WHERE w_id = :w INTO w_tax;
    IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
    SELECT c_discount, c_last, c_credit FROM customer
    WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c
    INTO c_discount, c_last, c_credit;
    IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
    SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = :w AND d_id = :d WITH LOCK
    INTO d_next_o_id, d_tax;
    IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
    UPDATE district SET d_next_o_id = :d_next_o_id + 1 WHERE d_w_id = :w AND d_id = :d;
    INSERT INTO orders
        (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)
    VALUES (:w, :d, :d_next_o_id, :c, :moment, NULL, :lines_wanted, :is_local);
    INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (:w, :d, :d_next_o_id);
    items = items || ',';
    suppliers = suppliers || ',';
    quantities = quantities || ',';
    listed = '';
    place = 1;
    WHILE (place <= lines_wanted) DO
    BEGIN
        EXECUTE PROCEDURE tpcc_head(items) RETURNING_VALUES item, items;
        EXECUTE PROCEDURE tpcc_head(suppliers) RETURNING_VALUES supplier, suppliers;
        EXECUTE PROCEDURE tpcc_head(quantities) RETURNING_VALUES quantity, quantities;
        SELECT i_price, i_name, i_data FROM item WHERE i_id = :item INTO i_price, i_name, i_data;
        IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_unused;
        SELECT s_quantity,
            CASE :d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06
                WHEN 7 THEN s_dist_07 WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09
                ELSE s_dist_10 END,
            s_data
        FROM stock WHERE s_w_id = :supplier AND s_i_id = :item WITH LOCK
        INTO s_quantity, s_dist, s_data;
        IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
        UPDATE stock SET
            s_quantity = IIF(:s_quantity >= :quantity + 10,
                :s_quantity - :quantity, :s_quantity - :quantity + 91),
            s_ytd = s_ytd + :quantity, s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + IIF(:supplier <> :w, 1, 0)
        WHERE s_w_id = :supplier AND s_i_id = :item;
        INSERT INTO order_line
            (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d,
            ol_quantity, ol_amount, ol_dist_info)
        VALUES (:w, :d, :d_next_o_id, :place, :item, :supplier, NULL,
            :quantity, :i_price * :quantity, :s_dist);
        listed = listed || i_name || ',' || i_price || ',' || s_quantity || ';';
        place = place + 1;
    END
END

CREATE OR ALTER PROCEDURE tpcc_payment (
    w INTEGER, d INTEGER, of_w INTEGER, of_d INTEGER, c INTEGER, name VARCHAR(16),
    amount BIGINT, moment BIGINT)
RETURNS (w_name VARCHAR(10), w_street_1 VARCHAR(20), w_street_2 VARCHAR(20), w_city VARCHAR(20),
    w_state CHAR(2), w_zip CHAR(9),
    d_name VARCHAR(10), d_street_1 VARCHAR(20), d_street_2 VARCHAR(20), d_city VARCHAR(20),
    d_state CHAR(2), d_zip CHAR(9),
    c_id INTEGER, c_credit CHAR(2), c_first VARCHAR(16), c_middle CHAR(2), c_last VARCHAR(16),
    c_street_1 VARCHAR(20), c_street_2 VARCHAR(20), c_city VARCHAR(20), c_state CHAR(2),
    c_zip CHAR(9), c_phone CHAR(16), c_since BIGINT, c_credit_lim BIGINT, c_discount INTEGER,
    c_balance BIGINT, past VARCHAR(500))
AS
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + :amount WHERE w_id = :w;
    SELECT w_name, w_street_1, w_street_2, w_city, w_state, w_zip FROM warehouse WHERE w_id = :w
    INTO w_name, w_street_1, w_street_2, w_city, w_state, w_zip;
    IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
    UPDATE district SET d_ytd = d_ytd + :amount WHERE d_w_id = :w AND d_id = :d;
    SELECT d_name, d_street_1, d_street_2, d_city, d_state, d_zip FROM district
    WHERE d_w_id = :w AND d_id = :d
    INTO d_name, d_street_1, d_street_2, d_city, d_state, d_zip;
    IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
    IF (c IS NULL) THEN
        EXECUTE PROCEDURE tpcc_customer(of_w, of_d, name) RETURNING_VALUES c;
    c_id = c;
    SELECT c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip,
        c_phone, c_since, c_credit_lim, c_discount, c_balance
    FROM customer WHERE c_w_id = :of_w AND c_d_id = :of_d AND c_id = :c WITH LOCK
    INTO c_credit, c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip,
        c_phone, c_since, c_credit_lim, c_discount, c_balance;
    IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
    IF (c_credit = 'BC') THEN
    BEGIN
        SELECT c_data FROM customer
        WHERE c_w_id = :of_w AND c_d_id = :of_d AND c_id = :c WITH LOCK
        INTO past;
        past = LEFT(c || ' ' || of_d || ' ' || of_w || ' ' || d || ' ' || w || ' ' || amount
            || ' ' || past, 500);
        UPDATE customer SET c_balance = c_balance - :amount,
            c_ytd_payment = c_ytd_payment + :amount, c_payment_cnt = c_payment_cnt + 1,
            c_data = :past
        WHERE c_w_id = :of_w AND c_d_id = :of_d AND c_id = :c;
    END
    ELSE
        UPDATE customer SET c_balance = c_balance - :amount,
            c_ytd_payment = c_ytd_payment + :amount, c_payment_cnt = c_payment_cnt + 1
        WHERE c_w_id = :of_w AND c_d_id = :of_d AND c_id = :c;
    INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
    VALUES (:c, :of_d, :of_w, :d, :w, :moment, :amount, :w_name || '    ' || :d_name);
END

CREATE OR ALTER PROCEDURE tpcc_order_status (
    w INTEGER, d INTEGER, c INTEGER, name VARCHAR(16))
RETURNS (c_id INTEGER, c_balance BIGINT, c_first VARCHAR(16), c_middle CHAR(2),
    c_last VARCHAR(16), o_id INTEGER, o_entry_d BIGINT, o_carrier_id INTEGER,
    listed VARCHAR(2000))
AS
    DECLARE ol_i_id INTEGER;
    DECLARE ol_supply_w_id INTEGER;
    DECLARE ol_quantity INTEGER;
    DECLARE ol_amount BIGINT;
    DECLARE ol_delivery_d BIGINT;
BEGIN
    IF (c IS NULL) THEN
        EXECUTE PROCEDURE tpcc_customer(w, d, name) RETURNING_VALUES c;
    c_id = c;
    SELECT c_balance, c_first, c_middle, c_last FROM customer
    WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c
    INTO c_balance, c_first, c_middle, c_last;
    IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
    SELECT o_id, o_entry_d, o_carrier_id FROM orders
    WHERE o_w_id = :w AND o_d_id = :d AND o_c_id = :c ORDER BY o_id DESC ROWS 1
    INTO o_id, o_entry_d, o_carrier_id;
    IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
    listed = '';
    FOR SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line
        WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :o_id
        INTO ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d
    DO
        listed = listed || ol_i_id || ',' || ol_supply_w_id || ',' || ol_quantity || ','
            || ol_amount || ',' || COALESCE(ol_delivery_d, '') || ';';
    IF (listed = '') THEN EXCEPTION tpcc_missing;
END

CREATE OR ALTER PROCEDURE tpcc_delivery (w INTEGER, carrier INTEGER, moment BIGINT)
RETURNS (delivered VARCHAR(200))
AS
    DECLARE d INTEGER;
    DECLARE number INTEGER;
    DECLARE c INTEGER;
    DECLARE amount BIGINT;
BEGIN
    delivered = '';
    d = 1;
    WHILE (d <= 10) DO
    BEGIN
        SELECT no_o_id FROM new_order WHERE no_w_id = :w AND no_d_id = :d
        ORDER BY no_o_id ROWS 1 WITH LOCK
        INTO number;
        IF (ROW_COUNT = 1) THEN
        BEGIN
            DELETE FROM new_order WHERE no_w_id = :w AND no_d_id = :d AND no_o_id = :number;
            IF (ROW_COUNT <> 1) THEN EXCEPTION tpcc_missing;
            SELECT o_c_id FROM orders
            WHERE o_w_id = :w AND o_d_id = :d AND o_id = :number WITH LOCK
            INTO c;
            IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
            UPDATE orders SET o_carrier_id = :carrier
            WHERE o_w_id = :w AND o_d_id = :d AND o_id = :number;
            UPDATE order_line SET ol_delivery_d = :moment
            WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :number;
            SELECT SUM(ol_amount) FROM order_line
            WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id = :number
            INTO amount;
            IF (amount IS NULL) THEN EXCEPTION tpcc_missing;
            UPDATE customer SET c_balance = c_balance + :amount,
                c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = :w AND c_d_id = :d AND c_id = :c;
            delivered = delivered || d || ',' || number || ';';
        END
        d = d + 1;
    END
END

CREATE OR ALTER PROCEDURE tpcc_stock_level (w INTEGER, d INTEGER, threshold INTEGER)
RETURNS (low INTEGER)
AS
    DECLARE number INTEGER;
BEGIN
    SELECT d_next_o_id FROM district WHERE d_w_id = :w AND d_id = :d INTO number;
    IF (ROW_COUNT = 0) THEN EXCEPTION tpcc_missing;
    SELECT COUNT(DISTINCT s_i_id) FROM order_line, stock
    WHERE ol_w_id = :w AND ol_d_id = :d AND ol_o_id >= :number - 20 AND ol_o_id < :number
        AND s_w_id = :w AND s_i_id = ol_i_id AND s_quantity < :threshold
    INTO low;
END
